"""Models of matrices that a test draws or gives, layer by layer."""

from rmtbase.models import Place, Site, Tensor, open_model


def model_of(
    rng, places, *, heads=2, key_heads=None, d_model=24, d_head=4, d_value=None, widths=None, draw=None, **changed
):
    """A model of independent matrices; ``changed`` are tensors by name, ``0.query`` as ``t0_query``."""
    key_heads, d_value = key_heads or heads, d_value or d_head
    tensors, sites = {}, []
    for number, place in enumerate(places):
        d_key, d_output = (widths or {}).get(number, (d_model, d_model))
        shapes = {
            "query": (heads * d_head, d_model),
            "key": (key_heads * d_head, d_key),
            "value": (key_heads * d_value, d_key),
            "output": (d_output, heads * d_value),
        }
        for part, shape in shapes.items():
            drawn = rng.standard_normal(shape) if draw is None else draw(rng, shape)
            tensors[f"{number}.{part}"] = changed.get(f"t{number}_{part}", drawn)
        sites.append(
            Site(
                place=place, n_heads=heads, n_key_heads=key_heads, d_head=d_head, d_value=d_value, d_query=d_model,
                d_key=d_key, d_output=d_output, **{part: Tensor(f"{number}.{part}") for part in shapes},
            )
        )  # fmt: skip
    return open_model(tensors, sites=sites, name="made")


def layers(count, stack=""):
    return [Place(stack, layer) for layer in range(count)]
