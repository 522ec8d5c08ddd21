"""The objects of the verbs: Context, PD, MR, CQ, QP, work requests and completions."""
