import shardpass.lit

shardpass.lit.configure(config, lit_config, devices=8)
