"""What is raised where a plan and the text do not agree."""


class MismatchError(Exception):
    """An edit does not find what its plan saw: a defect of this tool, never of the user's code."""
