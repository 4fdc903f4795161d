"""What clients and brokers are observed to do, and the laws that the observations are held to."""
