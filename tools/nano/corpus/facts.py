"""Questions about cedra, answered from docs/nano/facts.json; greetings; what the model does not know."""
import json
import zlib
from pathlib import Path

from chat import Chat
from corpus.common import (CITIES, NAMES, NOUNS, Sample, assistant, by_effort, pick_mode, pick_system, user)

FACTS = json.loads((Path(__file__).parents[3] / "docs/nano/facts.json").read_text(encoding="utf-8"))

GENERAL = ["What is {x}?", "What does {x} do?", "What is {x} for?", "Explain {x}.", "Tell me about {x}.",
           "Describe {x}.", "What does {x} mean?", "Why is there {x}?", "How do I use {x}?"]
TEMPLATES = {
    "flag": GENERAL + ["What does the flag {x} do?", "What is the flag {x} for?", "Explain the flag {x}."],
    "command": [t.replace("{x}", "cedra {x}") for t in GENERAL] + [
        "What does the command {x} do?", "What is the command {x} for?", "Explain the command {x}."],
    "route": GENERAL + ["What does the route {x} do?", "What is the route {x} for?", "Explain the route {x}."],
    "field": ["What does the field {x} do?", "What is {x} in a request?", "Explain {x} in a request.",
              "What is the field {x} for?", "What does {x} do?", "Tell me about the field {x}.",
              "Describe the field {x}.", "What is the request field {x}?", "Explain the field {x}."]}
TOPIC_TEMPLATES = ["Tell me about {x}.", "Please explain {x}.", "I want to know about {x}.", "{x}?",
                   "What about {x}?"]
UNKNOWN = ["What is the capital of {place}?", "Who is the king of {place}?", "Write a poem about a {noun}.",
           "How old is {name}?", "What is the weather in {place}?", "Who wrote the book about the {noun}?",
           "Tell me a story about a {noun}.", "Where does {name} live?", "What does a {noun} cost?",
           "Who won the game in {place}?", "How many people live in {place}?", "Tell me about {place}.",
           "What is a {noun}?", "Tell me about {name}.", "How do I build a {noun}?", "Who is {name}?"]

# Small talk, where every wording is trained.
ALWAYS_TRAINED = {"the greeting", "thanks", "the farewell", "how I am"}
WITHOUT_TOPIC_QUESTIONS = ALWAYS_TRAINED | {"myself", "what I can do"}

OPENINGS = ["Please tell me: ", "Hi! ", "Hello! ", "Quick question: ", "I have a question. ", "Tell me, ",
            "Another question: ", "One question: "]
ENDINGS = [" Thanks.", " Please.", " Answer briefly.", " Thank you."]


def questions(fact):
    """All wordings of a fact's question, undecorated."""
    if fact["kind"] == "question":
        return fact["questions"]
    return [t.format(x=fact["about"]) for t in TEMPLATES[fact["kind"]]]


def held_out_question(fact):
    """The wording that only the skills use; None for facts with few wordings. Never the first one."""
    if fact["kind"] == "unknown" or fact["about"] in ALWAYS_TRAINED:
        return None
    words = questions(fact)
    if len(words) < 5:
        return None
    return words[1 + zlib.crc32(fact["about"].encode()) % (len(words) - 1)]


def unknown_question(rng):
    return rng.choice(UNKNOWN).format(place=rng.choice(CITIES), noun=rng.choice(NOUNS), name=rng.choice(NAMES))


def trained_question(rng, fact):
    """A question for training, decorated now and then."""
    if fact["kind"] == "unknown":
        return decorated(rng, unknown_question(rng))
    words = [q for q in questions(fact) if q != held_out_question(fact)]
    text = rng.choice(words)
    if fact["kind"] == "question" and fact["about"] not in WITHOUT_TOPIC_QUESTIONS and rng.random() < 0.2:
        text = rng.choice(TOPIC_TEMPLATES).format(x=fact["about"])
        if text == held_out_question(fact):
            text = words[0]
    return text if fact["about"] in ALWAYS_TRAINED else decorated(rng, text)


def decorated(rng, text):
    """The text with an opening, an ending, in small letters or without its mark, or as it is."""
    roll = rng.random()
    if roll < 0.1:
        return rng.choice(OPENINGS) + text
    if roll < 0.2:
        return text + rng.choice(ENDINGS)
    if roll < 0.3:
        return text[0].lower() + text[1:]
    if roll < 0.4:
        return text.rstrip("?.")
    return text


def reasoning(fact, effort):
    if fact["kind"] == "unknown":
        return by_effort(effort, "I do not know this.", "The user asks about something else. I do not know this.",
                         "The user asks about something else. It is not about cedra. I do not know this.")
    topic = fact["about"]
    return by_effort(
        effort, f"About {topic}.", f"The user asks about {topic}. I know the answer.",
        f"The user asks about {topic}. It is in {fact['source']}. I know the answer and give it in short.")


def exchange(rng, effort, fact=None):
    """One question and its answer."""
    if fact is None:
        fact = rng.choice(FACTS) if rng.random() < 0.95 else FACTS[-1]
    return [user(trained_question(rng, fact)), assistant(reasoning(fact, effort), fact["answer"])]


def make(rng):
    thinking, effort = pick_mode(rng)
    messages = pick_system(rng)
    for _ in range(rng.choice([1, 1, 1, 2] if thinking else [1, 2, 3, 4])):
        messages += exchange(rng, effort)
    keys = ["fact " + m["content"] for m in messages if m["role"] == "user"]
    return Sample("facts", Chat(messages, thinking, effort), keys)
