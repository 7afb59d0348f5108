"""JSON objects on request."""
from chat import Chat, dump_json
from corpus.common import (ADJECTIVES, NOUNS, Sample, any_city, any_name, assistant, by_effort, draw, listing,
                           pick_mode, some_words, user)

# key -> maker of a value
FIELDS = {
    "name": any_name, "city": any_city, "age": lambda r: r.randint(1, 99), "count": lambda r: r.randint(0, 500),
    "price": lambda r: r.randint(1, 999) / 10, "color": lambda r: r.choice("red blue green yellow black white".split()),
    "active": lambda r: r.random() < 0.5, "id": lambda r: r.randint(1, 9999),
    "tags": lambda r: r.sample(NOUNS, r.randint(1, 3)),
    "numbers": lambda r: [r.randint(0, 99) for _ in range(r.randint(2, 4))],
    "title": lambda r: some_words(r, 2, 2), "size": lambda r: r.choice(["small", "medium", "large"]),
    "year": lambda r: r.randint(1950, 2030), "item": lambda r: r.choice(NOUNS), "mood": lambda r: r.choice(ADJECTIVES),
    "friend": any_name, "level": lambda r: r.randint(1, 10), "done": lambda r: r.random() < 0.5,
    "email": lambda r: any_name(r).lower() + "@example.com", "score": lambda r: r.randint(0, 100)}

ASK = ["Give me a JSON object with {fields}.", "Write a JSON object with {fields}.", "Make JSON with {fields}.",
       "Return a JSON object with {fields}.", "I need JSON with {fields}.", "JSON with {fields}, please.",
       "Answer in JSON with {fields}.", "Write {fields} as a JSON object."]
SYSTEMS = ["Answer with JSON.", "You write JSON.", "Answer in JSON only."]


def spoken(value):
    """A value as a user writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return listing(value) if isinstance(value, list) else str(value)


def problem(rng):
    """(key, object)."""
    names = rng.sample(sorted(FIELDS), rng.choice([1, 2, 2, 3, 3, 4]))
    made = {n: FIELDS[n](rng) for n in names}
    return "json " + dump_json(made), made


def ask(rng, made):
    return rng.choice(ASK).format(fields=listing(f"{k} {spoken(v)}" for k, v in made.items()))


def reasoning(made, effort):
    keys = listing(made)
    return by_effort(effort, "I write JSON.", f"The user wants a JSON object. The keys are {keys}.",
                     f"The user wants a JSON object. The keys are {keys}. I write only the object and no other text.")


def make(rng):
    thinking, effort = pick_mode(rng)
    messages, keys = [], []
    if rng.random() < 0.3:
        messages.append({"role": "system", "content": rng.choice(SYSTEMS)})
    for _ in range(rng.choice([1, 1, 2] if thinking else [1, 2, 3])):
        name, made = draw(rng, problem, False)
        keys.append(name)
        messages += [user(ask(rng, made)), assistant(reasoning(made, effort), dump_json(made))]
    return Sample("json", Chat(messages, thinking, effort, json_object=rng.random() < 0.5), keys)
