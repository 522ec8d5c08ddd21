"""QP, MR and page tables, and the address translation that reads them."""
