from support.containers import fake_engine as fake_engine
