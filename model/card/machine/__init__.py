"""The card in time as machine code: its pipelines between two things that Python has to do."""
