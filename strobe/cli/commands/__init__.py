"""The commands of ``strobe``: one module each, with a function (or a group) of the module's name."""
