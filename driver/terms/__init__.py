"""Terms of the verbs that all parts of the driver share: enumerations, errors and work completions."""
