"""How the code blocks of README and docs are run, and what else holds of those pages.

A block of Python runs as it stands, with ``await`` allowed at the top, and shares its names with
the page's other blocks. An invisible block (an HTML comment that begins with
``invisible-code-block: python``) before it prepares what the reader has and the page does not
show: topics with records, functions of theirs. Invisible blocks see ``page``, a
:class:`documentation.kafka_page.KafkaPage`.

Of a visible block only names of places are changed, and only after ``page.topic(...)`` was
called: topics and groups get names of their own, and ``bootstrap_servers`` is the test's broker.

A loop that would go on for ever ends because ``page.stop_after(n)`` gives the block a function
that stops its consumers when it has seen ``n`` records; every block has a deadline besides.

A block of YAML is a manifest of Kubernetes, and one of a Dockerfile an image, whose containers run
commands that exist.

A block of shell is not run, but each command, option, extra, file and environment in it must
exist. A block of any other language, or of none, is an error.
"""
