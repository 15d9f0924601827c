from support.nodes.containers import fake_engine as fake_engine
