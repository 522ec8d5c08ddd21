"""The words of the verbs that every part of the driver speaks: enumerations and work completions."""
