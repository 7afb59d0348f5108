"""Conversations with tools: one call, parallel calls, results used in the answer, and no call at all."""
import string

from chat import Chat, dump_json
from corpus import arithmetic, facts
from corpus.common import Sample, assistant, by_effort, held_out, pick_mode, user
from corpus.tool_pool import POOL


class Tool:
    """A tool of the pool with the names of this conversation."""

    def __init__(self, entry, rng):
        self.entry = entry
        self.name = rng.choice(entry["names"])
        self.keys = []
        for names, *_ in entry["params"]:
            free = [n for n in names if n not in self.keys]
            self.keys.append(rng.choice(free or names))

    def schema(self):
        properties = {k: p[1] for k, p in zip(self.keys, self.entry["params"])}
        return {"name": self.name, "description": self.entry["description"],
                "parameters": {"type": "object", "properties": properties, "required": self.keys}}

    def job(self, rng):
        """A wish: what the user says, the call, its result and the answer."""
        values = [p[2](rng) for p in self.entry["params"]]
        said = [p[3](v) if len(p) > 3 else str(v) for p, v in zip(self.entry["params"], values)]
        result = self.entry["result"](rng)
        if self.entry["description"] == "Sort numbers":
            result = {"sorted": sorted(values[0], reverse=values[1])}
        shown = {k: dump_json(v) if isinstance(v, list) else v for k, v in result.items()}
        return {"ask": rng.choice(self.entry["ask"]).format(*said), "want": self.entry["want"].format(*said),
                "call": {"name": self.name, "arguments": dict(zip(self.keys, values))},
                "result": dump_json(result), "answer": self.entry["answer"].format(*said, **shown)}


def key(job):
    """What the split goes by: the values of the arguments, whatever the names."""
    return "call " + job["want"].rstrip(string.punctuation) + dump_json(list(job["call"]["arguments"].values()))


def draw_job(rng, tool, skill=False):
    """A job on the wanted side of the split; those without arguments are on both."""
    while True:
        job = tool.job(rng)
        if not job["call"]["arguments"] or held_out(key(job)) == skill:
            return job


def join_wishes(rng, jobs):
    """One user message of several wishes."""
    first, *others = [j["ask"] for j in jobs]
    return " ".join([first] + [f"{rng.choice(['Also:', 'And:', 'Then:'])} {o}" for o in others])


def call_reasoning(jobs, effort):
    names = " and ".join(j["call"]["name"] for j in jobs)
    wants = " and ".join(j["want"] for j in jobs)
    return by_effort(effort, f"I call {names}.", f"The user wants {wants}. I call {names}.",
                     f"The user wants {wants}. The right tool is {names}. I call {names} now.")


def result_reasoning(jobs, effort):
    results = " and ".join(j["result"] for j in jobs)
    return by_effort(effort, "I have the result.", "I have the result. I tell the user.",
                     f"The result is {results}. I tell the user.")


def call_turn(jobs, effort):
    """The assistant's call."""
    return assistant(call_reasoning(jobs, effort), "", [j["call"] for j in jobs])


def final_answer(jobs):
    return " ".join(j["answer"] for j in jobs)


def pick_tools(rng):
    """One to three tools with different names."""
    while True:
        tools = [Tool(e, rng) for e in rng.sample(POOL, rng.choice([1, 2, 2, 3, 3]))]
        if len({t.name for t in tools}) == len(tools):
            return tools


def pick_jobs(rng, tools, skill=False):
    """What one turn asks for: one thing, mostly."""
    if rng.random() < 0.75:
        chosen = [rng.choice(tools)]
    elif len(tools) > 1 and rng.random() < 0.5:
        chosen = rng.sample(tools, 2)
    else:
        chosen = [rng.choice([t for t in tools if t.keys] or tools)] * 2
    return [draw_job(rng, t, skill) for t in chosen]


def make(rng):
    thinking, effort = pick_mode(rng)
    tools, keys, messages = pick_tools(rng), [], []
    if rng.random() < 0.3:
        messages.append({"role": "system",
                         "content": rng.choice(["You are a helpful assistant.", "Use the tools.", "You have tools."])})
    for _ in range(rng.choice([1, 2, 3, 4])):
        roll = rng.random()
        if roll < 0.06:
            messages += facts.exchange(rng, effort)
        elif roll < 0.12:
            name, turn = arithmetic.exchange(rng, effort)
            messages += turn
            keys.append(name)
        else:
            jobs = pick_jobs(rng, tools)
            keys += [key(j) for j in jobs if j["call"]["arguments"]]
            messages += [user(join_wishes(rng, jobs)), call_turn(jobs, effort)]
            messages += [{"role": "tool", "content": j["result"]} for j in jobs]
            messages.append(assistant(result_reasoning(jobs, effort), final_answer(jobs)))
    return Sample("tools", Chat(messages, thinking, effort, [t.schema() for t in tools]), keys)
