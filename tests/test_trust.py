"""What a statement must be before anything that it lists is opened."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilegate.errors import SchemaError, TrustError
from tilegate.records.canonical import Blob, blob_of, digest_of, encode
from tilegate.records.policy import Policy
from tilegate.records.release import Candidate, Release
from tilegate.records.shape import Range, ShapeClass
from tilegate.records.target import DeviceClass, Target
from tilegate.trust.verify import verify

CONTRACT = blob_of(b"the contract")


def candidate(**changes):
    fields = {
        "operator": "rms_norm",
        "contract": CONTRACT.digest,
        "kernel": "rms_norm_rows",
        "target": Target(backend="cpu", arch="x86-64-v3"),
        "manifest": blob_of(b"the manifest"),
        "library": blob_of(b"the library"),
        "evaluations": (blob_of(b"evidence"),),
        "devices": (DeviceClass(backend="cpu", arch="x86-64-v3", model="a model"),),
        "classes": (ShapeClass(axes={"tokens": Range(start=1, stop=64)}, alignment_bytes=4),),
    }
    return Candidate(**{**fields, **changes})


def release(*candidates, contracts=(CONTRACT,)):
    return Release(version=1, policy=Policy(), contracts=contracts, candidates=candidates)


def refused(statement):
    with pytest.raises(TrustError) as caught:
        verify(statement, allow_unsigned=True)
    assert caught.value.where == digest_of(statement)
    assert caught.value.next_step
    return caught.value


def test_a_consistent_statement_is_the_release_it_says():
    promoted = release(candidate(), candidate(kernel="other", manifest=blob_of(b"another manifest")))
    assert verify(encode(promoted), allow_unsigned=True) == promoted


def test_an_unsigned_release_is_not_believed_by_default():
    with pytest.raises(TrustError, match="the release is not signed") as caught:
        verify(encode(release(candidate())), allow_unsigned=False)
    assert caught.value.exit_code == 4
    assert "allow_unsigned=True" in caught.value.next_step


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_statement_has_no_second_spelling(data):
    """Bytes that differ from a statement in one place are refused, or are another release."""
    content = bytearray(encode(release(candidate())))
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = verify(bytes(content), allow_unsigned=True)
    except TrustError:
        return
    assert encode(found) == bytes(content)


def test_a_statement_with_added_space_is_refused():
    assert "not a canonical Release" in refused(encode(release(candidate())) + b" ").why


def test_a_statement_of_another_version_says_so():
    statement = encode(release(candidate())).replace(b"tilegate.release/1", b"tilegate.release/2")
    error = refused(statement)
    assert "tilegate.release/2" in error.why
    assert isinstance(error.__cause__, SchemaError)


def test_another_record_is_no_release():
    assert isinstance(refused(b'{"lines":[],"schema":"tilegate.profile/1"}').__cause__, SchemaError)


def test_a_candidate_bound_to_an_unlisted_contract_is_refused():
    error = refused(encode(release(candidate(contract=digest_of(b"another contract")))))
    assert digest_of(b"another contract") in error.why


def test_a_candidate_without_a_shape_class_is_refused():
    assert "no shape class" in refused(encode(release(candidate(), candidate(kernel="x", classes=())))).why


def test_an_artifact_listed_twice_for_an_operator_is_refused():
    assert "listed twice" in refused(encode(release(candidate(), candidate(kernel="x")))).why


def test_an_artifact_may_serve_two_operators():
    both = release(candidate(), candidate(operator="rms_norm_too"))
    assert verify(encode(both), allow_unsigned=True) == both


@pytest.mark.parametrize("field", ["manifest", "library"])
def test_a_digest_with_two_sizes_is_refused(field):
    longer = Blob(digest=CONTRACT.digest, size=CONTRACT.size + 1)
    assert "with 12 and with 13 bytes" in refused(encode(release(candidate(**{field: longer})))).why


def test_an_evaluation_with_two_sizes_is_refused():
    evaluations = (blob_of(b"evidence"), Blob(digest=digest_of(b"evidence"), size=9))
    assert "with 8 and with 9 bytes" in refused(encode(release(candidate(evaluations=evaluations)))).why


def test_a_contract_listed_twice_is_refused():
    assert "contract is listed twice" in refused(encode(release(contracts=(CONTRACT, CONTRACT)))).why
