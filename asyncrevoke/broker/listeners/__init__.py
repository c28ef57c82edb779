"""How clients reach a broker: ports, and listeners with TLS, SASL and access control."""
