"""Drawing: themes, axes, colour scales, layout and saving of figures, independent of any result."""
