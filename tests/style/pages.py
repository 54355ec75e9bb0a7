"""Reads pages, in Markdown or as man pages: their paragraphs of prose, and their lines that a person wrote.

Headings, tables, code, names of options and what programs write are no prose. Programs write between lines
<!-- NAME: begin --> and <!-- NAME: end -->. A span of code is one word, and so is a link."""
import re

GENERATED = re.compile(r"(?ms)^<!-- [\w-]+: begin -->\n.*?^<!-- [\w-]+: end -->\n?")
FENCED = re.compile(r"(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+\.)[ \t]+")
NO_PROSE = re.compile(r"[ \t]*(?:\||#|!\[|<!--)")

SECTIONS_WITHOUT_PROSE = ("NAME", "SYNOPSIS", "SEE ALSO")
BREAKS = ("SH", "SS", "TP", "TQ", "IP", "PP", "P", "LP", "RS", "RE", "nf", "fi", "TH", "br")
ESCAPES = [(r"\\f(?:\(..|\[[^]]*\]|.)", ""), (r"\\-", "-"), (r"\\&", ""), (r"\\\((?:en|em)", "-"), (r"\\\(..", "x"),
           (r"\\ ", " ")]


def find(root):
    """Returns the paths of all pages."""
    docs = root / "docs"
    return sorted(root.glob("*.md")) + sorted(docs.rglob("*.md")) + sorted(docs.rglob("*.[1-9]"))


def written_lines(text):
    """Counts lines, without those that programs write."""
    return len(GENERATED.sub("", text).splitlines())


def markdown_text(text):
    text = re.sub(r"`+[^`]+`+", "code", text)
    text = re.sub(r"\[[^]]*\]\([^)]*\)", "link", text)
    return text.replace("*", "")


def markdown_paragraphs(text):
    """Yields paragraphs and items of lists. A paragraph that is indented by four columns is code, but not in a list."""
    paragraph, in_list, in_code = [], False, False
    for line in FENCED.sub("", GENERATED.sub("", text)).splitlines() + [""]:
        item, is_blank, is_indented = ITEM.match(line), not line.strip(), line[:1].isspace()
        if not is_blank:
            in_list = bool(item) or in_list and (is_indented or bool(paragraph))
            in_code = not in_list and not paragraph and line[:4].isspace()
        if is_blank or item or in_code or NO_PROSE.match(line):
            if paragraph:
                yield markdown_text(" ".join(paragraph))
            paragraph = [line[item.end():]] if item else []
        else:
            paragraph.append(line.strip())


def roff_text(text):
    for pattern, put in ESCAPES:
        text = re.sub(pattern, put, text)
    return text


def macro_text(macro, rest):
    """Returns what a macro prints: its arguments, with spaces between if they have one font."""
    words = [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', rest)]
    return (" " if len(macro) == 1 else "").join(words)


def roff_paragraphs(text):
    """Yields the paragraphs of a man page, without the line behind .TP, which is a name."""
    paragraph, in_prose, in_code, is_name = [], True, False, False
    for line in text.replace("\\\n", "").splitlines() + [".PP"]:
        is_macro = line.startswith(".")
        macro, _, rest = line[1:].partition(" ") if is_macro else ("", "", line)
        if macro in BREAKS:
            if paragraph and in_prose:
                yield roff_text(" ".join(paragraph))
            paragraph = []
            in_code = macro == "nf" or in_code and macro != "fi"
            is_name = macro in ("TP", "TQ")
            if macro == "SH":
                in_prose = rest.strip('" ') not in SECTIONS_WITHOUT_PROSE
        elif is_name:
            is_name = False
        elif not in_code and not macro.startswith("\\"):
            paragraph.append(macro_text(macro, rest) if is_macro else line)


def paragraphs(path, text):
    return markdown_paragraphs(text) if path.suffix == ".md" else roff_paragraphs(text)
