"""Which kernels run where is read from what Linux says of the processor."""

from __future__ import annotations

from pathlib import Path

from radix_engine.cpu.processor import KINDS, Processor, read_processor, usable_kinds

ZEN3 = "fpu sse2 avx avx2 fma f16c bmi1 bmi2 sha_ni vaes"
ICE_LAKE = f"{ZEN3} avx512f avx512bw avx512vl avx512dq avx512_vnni"
ZEN4 = f"{ICE_LAKE} avx512_bf16"


def names(features: str) -> list[str]:
    return [kind.name for kind in usable_kinds(Processor("some", frozenset(features.split())))]


def test_a_processor_gets_the_kernels_it_has_instructions_for_fastest_first() -> None:
    assert names("fpu sse2") == []
    assert names(ZEN3) == ["avx2"]
    assert names(ICE_LAKE) == ["avx512", "avx2"]
    assert names(ZEN4) == ["avx512_bf16", "avx512", "avx2"]


def test_only_kernels_with_bf16_instructions_compute_in_bf16() -> None:
    assert [kind.name for kind in KINDS if kind.bf16] == ["amx", "avx512_bf16"]


def test_name_and_features_are_those_of_the_first_processor(tmp_path: Path) -> None:
    text = "processor\t: 0\nmodel name\t: Fast One\nflags\t\t: fpu avx2\n\nflags\t\t: fpu\n"
    (tmp_path / "cpuinfo").write_text(text)
    assert read_processor(tmp_path / "cpuinfo") == Processor("Fast One", frozenset({"fpu", "avx2"}))


def test_a_machine_that_does_not_say_has_no_features(tmp_path: Path) -> None:
    assert read_processor(tmp_path / "nothing").features == frozenset()
    (tmp_path / "cpuinfo").write_text("processor : 0\nFeatures : fp asimd\n")  # an Arm machine
    assert usable_kinds(read_processor(tmp_path / "cpuinfo")) == []
