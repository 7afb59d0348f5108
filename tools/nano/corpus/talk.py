"""Copying, reversing, counting and picking words."""
from chat import Chat
from corpus.common import Sample, assistant, by_effort, draw, made_up_word, pick_mode, pick_system, some_words, user


def word_list(rng):
    if rng.random() < 0.4:
        return [made_up_word(rng) for _ in range(rng.randint(2, 5))]
    return some_words(rng, 2, 6).split()


# name of the task, wordings, answer
TASKS = [
    ("repeat", ["Repeat: {t}", "Say: {t}", "Repeat these words: {t}", "Echo: {t}"], lambda w: " ".join(w)),
    ("reverse", ["Reverse the words: {t}", "Write these words backwards: {t}"], lambda w: " ".join(w[::-1])),
    ("count", ["How many words are here: {t}", "Count the words: {t}"], lambda w: f"{len(w)} words."),
    ("first", ["What is the first word: {t}", "Give me the first word of: {t}"], lambda w: w[0]),
    ("last", ["What is the last word: {t}", "Give me the last word of: {t}"], lambda w: w[-1]),
    ("list", ["Make a list of: {t}", "List these words: {t}"], lambda w: "\n".join(f"- {x}" for x in w))]


def problem(rng):
    """(key, (task, words))."""
    task, words = rng.choice(TASKS), word_list(rng)
    return f"talk {task[0]} {' '.join(words)}", (task, words)


def make(rng):
    thinking, effort = pick_mode(rng)
    messages, keys = pick_system(rng), []
    for _ in range(rng.choice([1, 1, 2] if thinking else [1, 2, 3])):
        key, ((name, wordings, answer), words) = draw(rng, problem, False)
        text = " ".join(words)
        thought = by_effort(effort, f"Task: {name}.", f"The task is {name}. The words are {text}.",
                            f"The task is {name}. The words are {text}. There are {len(words)} words.")
        messages += [user(rng.choice(wordings).format(t=text)), assistant(thought, answer(words))]
        keys.append(key)
    return Sample("talk", Chat(messages, thinking, effort), keys)
