"""What the numbers of map points say of descriptors, to whoever has the sketch of the map."""
