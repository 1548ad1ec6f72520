"""What plug-in authors and our own tests test with; nothing here is needed to run the bridge.

- `adapter_contract.AdapterContract`: what every adapter promises, as a pytest class to inherit.
- `fake_adapter.FakeAdapter`: a scripted engine in memory that keeps those promises.
- `fault_proxy.FaultProxy`: loses, delays and refuses calls between an AWS client and an emulator.
- `moto_engine.MotoEngine`: moto's Step Functions, really executing state machines.
"""
