"""The numbers at the end of a scenario."""


def spread(values):
    values = [value for value in values if value is not None]
    if not values:
        return None
    return {"min": round(min(values), 3), "max": round(max(values), 3), "count": len(values)}


def make(name, run):
    """Checks what must hold in every scenario, and gathers the numbers."""
    observer = run.observer
    total = observer.total
    surprises = run.surprises()
    run.check(total("wrong_pages") == 0, f"no wrong pages, not {total('wrong_pages')}")
    run.check(observer.open() == 0, f"every transfer ended, not all but {observer.open()}")
    mute = [node for node in observer.without_last_words() if node not in run.cluster.silenced]
    run.check(not mute, f"the traffic of every node says its last words, not all but {mute}")
    run.check(total("verified_pages") > 0, "pages were moved and verified")
    run.check(not surprises, f"nothing fails that nothing happened to: {surprises[:3]}"
              f"{' ...' if len(surprises) > 3 else ''} ({len(surprises)})")
    deaths = {how: spread([s for death in run.deaths if death["how"] == how
                           for s in death["told_s"].values()])
              for how in sorted({death["how"] for death in run.deaths})}
    return {
        "scenario": name,
        "runner": "local" if run.options.local else "compose",
        "nodes": run.options.nodes,
        "seed": run.options.seed,
        "transfers": {
            "submitted": total("submitted"), "done": total("done"), "bytes": total("bytes"),
            "verified_pages": total("verified_pages"), "wrong_pages": total("wrong_pages"),
            "unchecked_pages": total("unchecked_pages"), "without_an_end": observer.open(),
            "failed": observer.causes("failed"), "refused": observer.causes("refused"),
            "lost": observer.causes("lost"), "failed_by_surprise": len(surprises),
        },
        "first_verified_after_join_s": spread([each["verified_s"] for each in run.joins]),
        "converged_after_join_s": spread([each["converged_s"] for each in run.joins]),
        "death_known_s": deaths,
        "converged_after_death_s": spread([each["converged_s"] for each in run.deaths]),
        "numbers": run.numbers,
        "joins": run.joins,
        "deaths": run.deaths,
        "surprises": surprises,
        "broken": run.broken,
        "timeline": run.timeline.notes,
    }


def words(counts):
    return ", ".join(f"{count} {code}" for code, count in sorted(counts.items())) or "none"


def between(numbers):
    if numbers is None:
        return "-"
    return f"{numbers['min']:.2f} to {numbers['max']:.2f} s ({numbers['count']})"


def show(report):
    moved = report["transfers"]
    print(f"""
{report['scenario']}, {report['nodes']} nodes, {report['runner']}, seed {report['seed']}
  transfers                      {moved['submitted']}, {moved['bytes'] / 2**30:.2f} GiB
  wrong pages                    {moved['wrong_pages']} of {moved['verified_pages']} verified
  transfers without an end       {moved['without_an_end']}
  failed                         {words(moved['failed'])}
  failed by surprise             {moved['failed_by_surprise']}
  refused                        {words(moved['refused'])}
  lost with their own service    {words(moved['lost'])}
  first verified after a join    {between(report['first_verified_after_join_s'])}
  all see each other then        {between(report['converged_after_join_s'])}""")
    for how, numbers in report["death_known_s"].items():
        print(f"  death known, {how:<17} {between(numbers)}")
    if report["converged_after_death_s"]:
        print(f"  all agree after a death        {between(report['converged_after_death_s'])}")
    for key, value in report["numbers"].items():
        print(f"  {key:<30} {value}")
    if report["broken"]:
        print("  DOES NOT HOLD:")
        for text in report["broken"]:
            print(f"    {text}")
    else:
        print("  everything held")
    print(flush=True)
