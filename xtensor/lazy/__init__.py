"""How an expression becomes numbers. Nothing here knows of Tensor: leaves are blobs and Python scalars."""
