"""What all generators share: the shape of a sample, the split, effort bands, words."""
import zlib
from typing import NamedTuple

from chat import Chat, DEFAULT_EFFORT

NAMES = """Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karin Leo Mira Nora Oscar Paula Quinn Rosa
Simon Tina Uma Victor Wanda Xenia Yara Zoe Adam Bella Carl Dora Erik Fiona Gina Henry Iris Jack Kim Lena
Max Nina Otto Peter Ruth Sara Tom Ursula Vera Walter Alma Bruno Cora Dan Eva Frank Gloria Hanna Ivan Julia
Kurt Lisa Mark Nelly Olga Paul Rita Sven Thea Ugo Vivian Willi""".split()

CITIES = """Paris Berlin Rome Madrid London Vienna Oslo Prague Lisbon Dublin Athens Warsaw Bern Helsinki Cairo
Tokyo Delhi Lima Quito Boston Chicago Denver Austin Sydney Perth Toronto Nairobi Lagos Hanoi Seoul""".split()

NOUNS = """house river garden window lamp table stone road bridge tree cloud boat train horse bird cat dog
forest mountain lake market tower clock door book letter chair kitchen school farm field island ship wagon
village hill castle fence mirror basket candle drum flute ladder pocket ribbon saddle tunnel valley""".split()

ADJECTIVES = """old small green quiet bright long heavy soft cold warm dark wide narrow gentle busy empty round
young tall plain red blue white black yellow""".split()

VERBS = """stands waits rests moves turns sleeps shines lies stays sings falls grows""".split()

SYLLABLES = """ba be bi bo da de di do fa fe ga go ka ke ki ko la le li lo ma me mi mo na ne ni no pa pe pi po
ra re ri ro sa se si so ta te ti to va ve vi vo za zo""".split()

SYSTEMS = ["You are a helpful assistant.", "You are the assistant of cedra.", "Answer briefly.",
           "You are helpful and brief.", "Be brief.", "You are a friendly assistant."]


class Sample(NamedTuple):
    """One conversation of the corpus. `keys` name what must not be in both training and skills;
    `sentences` are the parts of the first user message if positions may jump between them."""
    kind: str
    chat: Chat
    keys: list
    images: list = []
    sentences: list = []


def held_out(key):
    """Whether what `key` names belongs to the skills (one in 16) and never to the training."""
    return zlib.crc32(key.encode()) % 16 == 0


def draw(rng, make, skill):
    """The first of `make(rng)`'s results, (key, value), on the wanted side of the split."""
    while True:
        key, value = make(rng)
        if held_out(key) == skill:
            return key, value


def pick_mode(rng):
    """(thinking, effort): on in 60 % of the conversations, at the default effort in half of these."""
    if rng.random() < 0.4:
        return False, DEFAULT_EFFORT
    effort = rng.choice([DEFAULT_EFFORT] * 5 + [25, 50, 100, rng.randint(1, 100), rng.randint(1, 100)])
    return True, effort


def by_effort(effort, short, medium, long):
    """The reasoning of an effort: one of three texts, each longer than the one before."""
    return short if effort <= 33 else medium if effort <= 80 else long


def pick_system(rng):
    """No system message, mostly."""
    return [{"role": "system", "content": rng.choice(SYSTEMS)}] if rng.random() < 0.2 else []


def user(content):
    return {"role": "user", "content": content}


def assistant(reasoning, content, calls=()):
    return {"role": "assistant", "reasoning_content": reasoning, "content": content,
            "tool_calls": list(calls)}


def made_up_word(rng):
    """A word of two or three syllables that no list holds, so that it has to be copied."""
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3)))


def any_name(rng):
    """A name: a usual one or a made-up one."""
    return rng.choice(NAMES) if rng.random() < 0.5 else made_up_word(rng).capitalize()


def any_city(rng):
    return rng.choice(CITIES) if rng.random() < 0.6 else made_up_word(rng).capitalize()


def some_words(rng, low, high):
    """A few plain words."""
    words = [rng.choice(ADJECTIVES) if i % 2 == 0 else rng.choice(NOUNS) for i in range(rng.randint(low, high))]
    return " ".join(words)


def listing(items):
    """`a`, `a and b`, `a, b and c`."""
    items = [str(i) for i in items]
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
