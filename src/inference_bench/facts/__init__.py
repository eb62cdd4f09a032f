"""What is published: model shapes, machines and number formats, each with its source. Facts, no arithmetic."""
