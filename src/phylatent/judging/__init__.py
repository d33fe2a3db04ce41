"""Models judged on the data they were trained on: diagnosed, planned with, and one record for each that is not made twice."""
