"""What did happen: clocks, machines and servers, measured."""
