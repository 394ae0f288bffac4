"""Policies: what is read, what is refused, and what it looks like."""

import pickle
from pathlib import Path

import pytest

import altq

CBQ = """link wan {
    rate 10Mbit/s
    scheduler cbq
    class voice { share 20% priority 7 }
    class rest { share 80% borrow default }
}
"""


def test_a_policy_has_classes_and_promises():
    policy = altq.Policy(CBQ)
    (link,) = policy.links
    assert (link.name, link.rate_bit_s, link.mtu_bytes) == ("wan", 10_000_000, 1500)
    assert [each.name for each in policy.classes] == ["wan", "voice", "rest"]
    assert [each.parent for each in policy.classes] == [None, "wan", "wan"]
    assert [each.id for each in policy.classes] == [0, 1, 2]
    # 20 % and 80 % of 10 Mbit/s; voice does not borrow, so its share is also the most it gets.
    promises = policy.promises
    assert promises["voice"].guaranteed_bit_s == promises["voice"].ceiling_bit_s == 2_000_000
    assert (promises["rest"].guaranteed_bit_s, promises["rest"].ceiling_bit_s) == (8_000_000, 10_000_000)
    assert promises["voice"].assumes
    assert policy.check["schema"] == "altq.check/1"
    assert "wan" in repr(policy)


def test_an_error_prints_the_caret():
    with pytest.raises(altq.PolicyError) as caught:
        altq.Policy(CBQ.replace("share 80%", "shar 80%"), name="office.altq")
    text = str(caught.value)
    # "    class rest { shar": line 5, and the word begins in column 18.
    assert "office.altq:5:18" in text and "^" in text and "share" in text
    first = caught.value.diagnostics[0]
    assert (first["severity"], first["file"], first["line"], first["column"]) == ("error", "office.altq", 5, 18)
    assert isinstance(caught.value, (ValueError, altq.Error))


def test_a_file_is_read_and_a_name_is_no_text(tmp_path: Path):
    file = tmp_path / "office.altq"
    file.write_text(CBQ)
    assert altq.Policy(file).classes[1].name == "voice"
    with pytest.raises(altq.PolicyError, match="looks like the name of a file"):
        altq.Policy("office.altq")
    with pytest.raises(altq.PolicyError, match="cannot be read|No such file"):
        altq.Policy(tmp_path / "none.altq")
    with pytest.raises(ValueError, match="is not a language"):
        altq.Policy(CBQ, language="french")


def test_other_languages_and_back(tmp_path: Path):
    text = "interface em0 bandwidth 10M cbq\nclass cbq em0 root_class NULL pbandwidth 100\n"
    text += "class cbq em0 def root_class borrow pbandwidth 90 default\n"
    policy = altq.Policy(text, language="altq", name="altq.conf")
    assert policy.links[0].rate_bit_s == 10_000_000
    again = altq.Policy(altq.Policy(CBQ).text())
    assert again.promises == altq.Policy(CBQ).promises


def test_several_links_need_a_name():
    two = CBQ + CBQ.replace("wan", "lan")
    policy = altq.Policy(two)
    assert [link.name for link in policy.links] == ["wan", "lan"]
    with pytest.raises(altq.PolicyError, match="several links; say which"):
        policy.classes
    with pytest.raises(altq.PolicyError, match="several links; say which with link="):
        altq.Engine(policy)
    assert altq.Engine(policy, link="lan").classes[0] == "lan"
    with pytest.raises(altq.PolicyError, match="no link"):
        altq.Engine(policy, link="man")


def test_warnings_are_diagnostics():
    # Two classes of 60 % each are more than the link has; `overcommit` makes that a warning.
    text = "link l { rate 1Mbit/s overcommit scheduler cbq class a { share 60% } class b { share 60% default } }"
    policy = altq.Policy(text)
    assert any(each.severity == "warning" and each.line == 1 for each in policy.diagnostics)
    assert "^" in policy.warnings()
    with pytest.raises(altq.PolicyError):
        altq.Policy(text.replace("overcommit ", ""))


def test_policies_and_exceptions_travel():
    policy = altq.Policy(CBQ)
    assert pickle.loads(pickle.dumps(policy)).promises == policy.promises
    error = altq.PolicyError("no", [{"line": 1}])
    assert pickle.loads(pickle.dumps(altq.PacketError("no"))).args == ("no",)
    assert error.diagnostics == [{"line": 1}]
