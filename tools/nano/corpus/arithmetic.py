"""Sums, differences and products with written reasoning whose length follows the effort."""
from chat import Chat
from corpus.common import NAMES, Sample, assistant, by_effort, held_out, pick_mode, pick_system, user

PLACES = ["Ones", "Tens", "Hundreds", "Thousands"]
ASK = {
    "+": ["What is {a} + {b}?", "{a} + {b}", "{a} + {b} =", "{a}+{b}", "What is {a} plus {b}?", "Add {a} and {b}.",
          "Calculate {a} + {b}.", "How much is {a} + {b}?", "What is the sum of {a} and {b}?", "{a}+{b}=?"],
    "-": ["What is {a} - {b}?", "{a} - {b}", "{a} - {b} =", "{a}-{b}", "What is {a} minus {b}?",
          "Subtract {b} from {a}.", "Calculate {a} - {b}.", "How much is {a} - {b}?"],
    "*": ["What is {a} * {b}?", "{a} * {b}", "What is {a} times {b}?", "Multiply {a} by {b}.",
          "Calculate {a} * {b}.", "How much is {a} * {b}?"]}
STORIES = {
    "+": ["{n} has {a} apples and gets {b} more. How many apples are that?",
          "There are {a} red cars and {b} blue cars. How many cars are there?"],
    "-": ["{n} has {a} apples and gives {b} away. How many are left?",
          "There are {a} birds and {b} fly away. How many birds are left?"],
    "*": ["There are {a} boxes with {b} books each. How many books are there?"]}


def value(a, op, b):
    return a + b if op == "+" else a - b if op == "-" else a * b


def key(a, op, b):
    """What the split goes by: the numbers, in either order where that is the same sum."""
    return f"sum {max(a, b)} {op} {min(a, b)}"


def statement(a, op, b):
    return f"{a} {op} {b} = {value(a, op, b)}."


def addition_steps(a, b):
    """Column by column, as written on paper."""
    steps, carry, place = [], 0, 0
    while a or b or place == 0:
        x, y = a % 10, b % 10
        total = x + y + carry
        line = f"{PLACES[place]}: {x} + {y}" + (f" + {carry}" if carry else "") + f" = {total}"
        carry = total // 10
        a, b, place = a // 10, b // 10, place + 1
        if carry and (a or b):
            line += f", write {total % 10}, carry 1"
        steps.append(line + ".")
    return " ".join(steps)


def subtraction_steps(a, b):
    steps, borrow, place = [], 0, 0
    while a or b or place == 0:
        x, y = a % 10, b % 10
        taken = f" - {borrow}" if borrow else ""
        left = x - y - borrow
        if left < 0:
            line = f"{PLACES[place]}: {x + 10} - {y}{taken} = {left + 10}, borrow 1."
        else:
            line = f"{PLACES[place]}: {x} - {y}{taken} = {left}."
        borrow = int(left < 0)
        a, b, place = a // 10, b // 10, place + 1
        steps.append(line)
    return " ".join(steps)


def product_steps(a, b):
    """Tens and ones of the first factor apart."""
    if a < 10:
        return f"{a} times {b} is {a * b}."
    tens, ones = a // 10 * 10, a % 10
    return f"{tens} * {b} = {tens * b}. {ones} * {b} = {ones * b}. {tens * b} + {ones * b} = {a * b}."


def check(a, op, b):
    result = value(a, op, b)
    if op == "+":
        return f"Check: {statement(result, '-', b)}"
    if op == "-":
        return f"Check: {statement(result, '+', b)}"
    return f"Check: {statement(b, '*', a)}"


def reasoning(a, op, b, effort):
    steps = {"+": addition_steps, "-": subtraction_steps, "*": product_steps}[op](a, b)
    end = statement(a, op, b)
    return by_effort(effort, end, f"{steps} So {end}", f"{steps} So {end} {check(a, op, b)}")


def problem(rng):
    """(key, (a, op, b)): mostly sums and differences of up to two digits."""
    op = rng.choice("+++---*")
    if op == "*":
        a, b = rng.randint(2, 9 if rng.random() < 0.5 else 99), rng.randint(2, 9)
    else:
        top = rng.choice([9, 99, 99, 99, 99, 999])
        a, b = rng.randint(0, top), rng.randint(0, top if rng.random() < 0.8 else 9)
        if op == "-" and a < b:
            a, b = b, a
    return key(a, op, b), (a, op, b)


def ask(rng, a, op, b):
    stories = STORIES[op] if a > 1 and b > 1 and rng.random() < 0.1 else ASK[op]
    return rng.choice(stories).format(a=a, b=b, n=rng.choice(NAMES))


def exchange(rng, effort, skill=False):
    """(key, messages) of one problem."""
    while True:
        name, (a, op, b) = problem(rng)
        # One-digit problems are too few to keep any from the training.
        if (max(a, b) > 9 and held_out(name)) == skill:
            break
    return name, [user(ask(rng, a, op, b)), assistant(reasoning(a, op, b, effort), statement(a, op, b))]


def make(rng):
    thinking, effort = pick_mode(rng)
    messages, keys = pick_system(rng), []
    for _ in range(rng.choice([1, 1, 1, 2] if thinking else [1, 2, 4, 6])):
        name, turn = exchange(rng, effort)
        messages += turn
        keys.append(name)
    return Sample("arithmetic", Chat(messages, thinking, effort), keys)
