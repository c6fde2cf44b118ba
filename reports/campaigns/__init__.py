"""What is measured of campaigns and takes minutes."""
