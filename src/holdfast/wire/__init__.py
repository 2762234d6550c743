"""What processes send to each other: typed messages, and the stream that carries them."""
