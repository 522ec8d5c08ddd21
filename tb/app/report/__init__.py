"""``weft report``: results of the wide-area experiments on one page with pictures."""
