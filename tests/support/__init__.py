"""What tests share: small graphs, ranks, hosts, slow references, cases."""
