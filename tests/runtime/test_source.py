from lantern.identity import code_of

CODE = "def double(x):\n    return 2 * x\n"


def test_comments_docstrings_and_layout_do_not_change_the_code():
    assert code_of(f'"""Doubles."""\n\n# a comment\n{CODE}') == code_of(CODE)
    assert code_of('class Empty:\n    """Nothing."""') == code_of("class Empty:\n    pass")


def test_an_edited_statement_changes_the_code():
    assert code_of(CODE) != code_of(CODE.replace("2", "3"))
