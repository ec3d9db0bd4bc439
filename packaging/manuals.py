#!/usr/bin/env python3
"""Makes man pages and bash completion from what the programs say of themselves with --help.

    manuals.py --bin DIR --out DIR

OUT/man1/penstock.1, penstock-COMMAND.1, OUT/man8/penstockd.8, OUT/completions/{penstock,penstockd}
"""

import argparse
import dataclasses
import pathlib
import re
import subprocess

# "  -e,--endpoint TEXT=...   words": the words may follow on the next line.
ENTRY = re.compile(r"^  (?P<name>\S.*?)(?:\s{2,}(?P<words>\S.*))?$")
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


@dataclasses.dataclass
class Help:
    summary: str = ""
    usage: str = ""
    sections: list = dataclasses.field(default_factory=list)  # (title, [(name, words)])
    footer: list = dataclasses.field(default_factory=list)

    def entries(self, *titles):
        return [entry for title, entries in self.sections if title in titles for entry in entries]

    def options(self):
        """Those that can be typed. Environment variables and defaults are not part of a name."""
        found = []
        for title, entries in self.sections:
            if title not in ("Positionals", "Subcommands"):
                for name, _ in entries:
                    found += OPTION.findall(re.split(r"[ {]", name)[0].replace(",", " "))
        return found


def read_help(text):
    told = Help()
    lines = text.rstrip().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Usage:"))
    told.summary = " ".join(lines[:at])
    told.usage = lines[at][len("Usage:"):].strip()
    title, entries = None, []
    for i in range(at + 1, len(lines)):
        line = lines[i]
        ends = re.fullmatch(r"([A-Z][^:]*):", line)
        if ends and not line.startswith("Exit codes"):
            if i + 1 < len(lines) and lines[i + 1].startswith("  ") and not line.startswith("Example"):
                title, entries = ends.group(1), []
                told.sections.append((title, entries))
                continue
        if title is None and not line:
            continue
        if title and line.startswith("          ") and entries:
            name, words = entries[-1]
            entries[-1] = (name, (words + " " + line.strip()).strip())
        elif title and ENTRY.match(line):
            match = ENTRY.match(line)
            entries.append((match["name"], match["words"] or ""))
        elif title and not line and i + 1 < len(lines) and (
                not lines[i + 1] or re.fullmatch(r"[A-Z][^:]*:", lines[i + 1])):
            continue
        elif line or told.footer:
            told.footer = lines[i:]
            break
    return told


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def man_page(name, section, told, see_also, version):
    usage = re.sub(r"^\S*/", "", told.usage)
    page = [f'.TH "{name.upper()}" {section} "" "penstock {version}" "Penstock"', ".SH NAME",
            f"{roff(name)} \\- {roff(told.summary.removeprefix(name + ': ').rstrip('.'))}",
            ".SH SYNOPSIS", f".B {roff(usage)}"]
    for title, entries in told.sections:
        page.append(f".SH {roff(title.upper())}")
        for entry, words in entries:
            page += [".TP", f".B {roff(entry)}", roff(words)]
    if told.footer:
        page += [".SH NOTES", ".nf", *(roff(line) for line in told.footer), ".fi"]
    page.append(".SH SEE ALSO")
    page += [f".BR {roff(other)} ({number})" for other, number in see_also]
    return "\n".join(page) + "\n"


COMPLETION = r'''# bash completion of {program}, made from its --help.
_{program}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command='' each
  for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " {commands} " in *" $each "*) command=$each; break ;; esac
  done
  local options
  case "$command" in
{cases}
    *) options='{options}' ;;
  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [[ -z $command && -n '{commands}' && $before != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W '{commands}' -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -F _{program} {program}
'''


def completion(program, told, commands):
    # Global options may follow a command.
    cases = "\n".join(f"    {name}) options='{' '.join(sorted({*each.options(), *told.options()}))}' ;;"
                      for name, each in commands.items())
    return COMPLETION.format(program=program, commands=" ".join(commands), cases=cases or "    '') ;;&",
                             options=" ".join(told.options()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()

    def ask(program, *words):
        return subprocess.run([arguments.bin / program, *words], check=True, capture_output=True,
                              text=True).stdout

    version = ask("penstock", "--version").split()[-1]
    top = read_help(ask("penstock", "--help"))
    commands = {name: read_help(ask("penstock", name, "--help"))
                for name, _ in top.entries("Subcommands")}
    service = read_help(ask("penstockd", "--help"))
    pages = {"man1/penstock.1": man_page("penstock", 1, top, [(f"penstock-{name}", 1)
                                                              for name in commands]
                                         + [("penstockd", 8)], version),
             "man8/penstockd.8": man_page("penstockd", 8, service, [("penstock", 1)], version)}
    for name, told in commands.items():
        pages[f"man1/penstock-{name}.1"] = man_page(f"penstock-{name}", 1, told,
                                                    [("penstock", 1)], version)
    pages["completions/penstock"] = completion("penstock", top, commands)
    pages["completions/penstockd"] = completion("penstockd", service, {})
    for path, text in pages.items():
        (arguments.out / path).parent.mkdir(parents=True, exist_ok=True)
        (arguments.out / path).write_text(text)


if __name__ == "__main__":
    main()
