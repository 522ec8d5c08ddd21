"""Objects of the verbs: Context, PD, MR, CQ, QP, work requests and completions."""
