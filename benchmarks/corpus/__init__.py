"""What measuring a corpus costs, beside a bare forward pass and the way of 2019."""
