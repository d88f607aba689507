"""`featveil bench ...`: studies of the methods. The laboratory uses the product, never the reverse."""
