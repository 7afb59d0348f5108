"""Codes told somewhere in a long text of filler sentences, asked for at its end."""
from chat import Chat
from corpus.common import (ADJECTIVES, NAMES, NOUNS, VERBS, Sample, any_name, assistant, by_effort, held_out,
                           pick_mode, user)

PLACES = ["near", "behind", "before", "under", "beside"]
ASK = ["What is the code of {n}?", "Which code has {n}?", "Tell me the code of {n}.", "What code does {n} have?",
       "I need the code of {n}.", "The code of {n}?"]
HEAD = ["Read this text.", "Here is a text.", "Remember the codes in this text.", "Read the text and answer."]


def filler(rng):
    """A sentence that tells nothing."""
    noun = lambda: f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    form = rng.randrange(4)
    if form == 0:
        return f"The {noun()} {rng.choice(VERBS)} {rng.choice(PLACES)} the {rng.choice(NOUNS)}."
    if form == 1:
        return f"The {noun()} is {rng.choice(PLACES)} the {noun()}."
    if form == 2:
        return f"{rng.choice(NAMES)} sees the {noun()}."
    return f"The {rng.choice(NOUNS)} of {rng.choice(NAMES)} is {rng.choice(ADJECTIVES)}."


def statement(name, code):
    return f"The code of {name} is {code}."


def pick_codes(rng, count, skill):
    """Names with their codes, all on one side of the split."""
    codes = {}
    while len(codes) < count:
        name, code = any_name(rng), f"{rng.randint(0, 9999):04d}"
        if held_out(f"code {name} {code}") == skill:
            codes[name] = code
    return codes


def text_sentences(rng, codes, fillers):
    """Filler sentences with the codes' sentences at random places among them."""
    sentences = [filler(rng) for _ in range(fillers)]
    for name, code in codes.items():
        sentences.insert(rng.randint(0, len(sentences)), statement(name, code))
    return sentences


def reasoning(name, code, effort):
    said = f"The text says: {statement(name, code)}"
    return by_effort(effort, f"{name} has {code}.", said, f"I look for the code of {name}. {said}")


def make_long(rng):
    """For the indexers, which have something to choose only in texts longer than index_topk rows."""
    return make(rng, fillers=rng.randint(90, 250))


def make(rng, fillers=None):
    thinking, effort = pick_mode(rng)
    codes = pick_codes(rng, rng.randint(1, 8), False)
    fillers = fillers or int(10 * 2 ** rng.uniform(0, 2.9))   # 10 to 75 sentences of about 10 tokens
    sentences = [rng.choice(HEAD)] + text_sentences(rng, codes, fillers)
    asked = rng.sample(sorted(codes), min(len(codes), rng.randint(1, 2 if thinking else 6)))
    messages = []
    for i, name in enumerate(asked):
        question = rng.choice(ASK).format(n=name)
        messages += [user(" ".join(sentences + [question]) if i == 0 else question),
                     assistant(reasoning(name, codes[name], effort), statement(name, codes[name]))]
    return Sample("recall", Chat(messages, thinking, effort), [f"code {n} {c}" for n, c in codes.items()],
                  sentences=sentences)
