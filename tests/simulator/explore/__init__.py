"""Small configurations of the shipping code, searched over every interleaving of their store operations."""
