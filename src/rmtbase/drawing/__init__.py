"""Drawing: themes, axes, scales of colour, layout and saving of figures; no result is known here."""
