"""Pictures of coloured shapes and digits, and questions about them.

Sides are multiples of 42 pixels from 84 to 168, so nothing is resampled: r x c blocks of 42 x 42 give
r x c image tokens.
"""
import zlib

import numpy
from PIL import Image, ImageDraw

from chat import IMAGE, Chat
from corpus.common import Sample, assistant, by_effort, held_out, pick_mode, user

COLORS = {"red": (220, 30, 30), "green": (30, 160, 50), "blue": (40, 70, 220), "yellow": (240, 220, 40),
          "black": (15, 15, 15), "orange": (245, 140, 20), "purple": (140, 50, 170), "pink": (250, 140, 190)}
BACKGROUNDS = {"white": (255, 255, 255), "grey": (190, 190, 190)}
SHAPES = ["circle", "square", "triangle", "cross", "ring", "diamond"]
NUMBERS = ["no", "one", "two", "three", "four"]

# Strokes of the digits in a box of width 1 and height 2: polylines.
DIGITS = [
    [[(0, 0), (1, 0), (1, 2), (0, 2), (0, 0)]],
    [[(0.1, 0.5), (0.55, 0), (0.55, 2)]],
    [[(0, 0.3), (0, 0), (1, 0), (1, 1), (0, 2), (1, 2)]],
    [[(0, 0), (1, 0), (1, 2), (0, 2)], [(0.3, 1), (1, 1)]],
    [[(0.2, 0), (0, 1.2), (1, 1.2)], [(0.75, 0.6), (0.75, 2)]],
    [[(1, 0), (0, 0), (0, 0.9), (1, 0.9), (1, 2), (0, 2)]],
    [[(1, 0), (0, 0), (0, 2), (1, 2), (1, 1), (0, 1)]],
    [[(0, 0), (1, 0), (0.3, 2)]],
    [[(0, 0), (1, 0), (1, 2), (0, 2), (0, 0)], [(0, 1), (1, 1)]],
    [[(1, 1), (0, 1), (0, 0), (1, 0), (1, 2), (0, 2)]]]


def draw_shape(pen, shape, x, y, radius, color):
    """A shape around (x, y)."""
    r, fill = radius, COLORS[color]
    box = (x - r, y - r, x + r, y + r)
    if shape == "circle":
        pen.ellipse(box, fill=fill)
    elif shape == "ring":
        pen.ellipse(box, outline=fill, width=max(4, r // 3))
    elif shape == "square":
        pen.rectangle(box, fill=fill)
    elif shape == "triangle":
        pen.polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], fill=fill)
    elif shape == "diamond":
        pen.polygon([(x, y - r), (x + r, y), (x, y + r), (x - r, y)], fill=fill)
    else:
        arm = max(3, r // 3)
        pen.rectangle((x - r, y - arm, x + r, y + arm), fill=fill)
        pen.rectangle((x - arm, y - r, x + arm, y + r), fill=fill)


def draw_digit(pen, digit, x, y, height, color):
    """A digit of thick strokes around (x, y)."""
    unit = height / 2
    width = max(5, height // 6)
    for line in DIGITS[digit]:
        points = [(x + (px - 0.5) * unit, y + (py - 1) * unit) for px, py in line]
        pen.line(points, fill=COLORS[color], width=width, joint="curve")
        for px, py in points:
            pen.ellipse((px - width / 2, py - width / 2, px + width / 2, py + width / 2), fill=COLORS[color])


def canvas(rng, columns=(2, 4), rows=(2, 4)):
    size = 42 * rng.randint(*columns), 42 * rng.randint(*rows)
    image = Image.new("RGB", size, BACKGROUNDS[rng.choice(sorted(BACKGROUNDS))])
    return image, ImageDraw.Draw(image)


def one_shape(rng):
    """(pixels, description, questions): one shape somewhere."""
    image, pen = canvas(rng)
    shape, color = rng.choice(SHAPES), rng.choice(sorted(COLORS))
    radius = rng.randint(18, min(image.size) // 2 - 4)
    x, y = (rng.randint(radius, side - 1 - radius) for side in image.size)
    draw_shape(pen, shape, x, y, radius, color)
    return image, f"a {color} {shape}", [
        ("What is in this picture?", f"A {color} {shape}."), ("Describe the picture.", f"A {color} {shape}."),
        ("What shape is this?", f"It is a {shape}."), ("Which shape do you see?", f"It is a {shape}."),
        ("What color is it?", f"It is {color}."), ("What color is the shape?", f"It is {color}."),
        ("How many shapes are there?", "There is one shape.")]


def one_digit(rng):
    image, pen = canvas(rng)
    digit, color = rng.randrange(10), rng.choice(sorted(COLORS))
    width, height = image.size
    tall = rng.randint(48, min(height - 16, 110))
    x = rng.randint(tall // 4 + 10, width - tall // 4 - 10)
    y = rng.randint(tall // 2 + 7, height - tall // 2 - 7)
    draw_digit(pen, digit, x, y, tall, color)
    return image, f"a {color} digit {digit}", [
        ("What is in this picture?", f"A {color} digit {digit}."),
        ("Describe the picture.", f"A {color} digit {digit}."),
        ("Which digit is this?", f"It is the digit {digit}."), ("What number do you see?", f"It is the digit {digit}."),
        ("What digit is shown?", f"It is the digit {digit}."), ("What color is it?", f"It is {color}."),
        ("What color is the digit?", f"It is {color}.")]


def two_sides(rng):
    """A shape on the left and another on the right."""
    image, pen = canvas(rng, columns=(3, 4))
    shapes, colors = rng.sample(SHAPES, 2), rng.sample(sorted(COLORS), 2)
    width, height = image.size
    for side in (0, 1):
        radius = rng.randint(18, min(width // 4, height // 2) - 3)
        x = width // 4 + side * width // 2 + rng.randint(-2, 2)
        draw_shape(pen, shapes[side], x, rng.randint(radius, height - 1 - radius), radius, colors[side])
    left, right = (f"{c} {s}" for c, s in zip(colors, shapes))
    text = f"A {left} on the left and a {right} on the right."
    return image, text[0].lower() + text[1:-1], [
        ("What is in this picture?", text), ("Describe the picture.", text),
        ("What is on the left?", f"A {left}."), ("What is on the right?", f"A {right}."),
        (f"Where is the {shapes[0]}?", "On the left."), (f"Where is the {shapes[1]}?", "On the right."),
        (f"What color is the {shapes[0]}?", f"It is {colors[0]}."),
        (f"What color is the {shapes[1]}?", f"It is {colors[1]}."),
        ("How many shapes are there?", "There are two shapes.")]


def several(rng):
    """Up to four equal shapes, one per quarter."""
    image, pen = canvas(rng, columns=(3, 4), rows=(3, 4))
    shape, color, count = rng.choice(SHAPES), rng.choice(sorted(COLORS)), rng.randint(1, 4)
    width, height = image.size
    for quarter in rng.sample(range(4), count):
        x = width // 4 + quarter % 2 * width // 2 + rng.randint(-5, 5)
        y = height // 4 + quarter // 2 * height // 2 + rng.randint(-5, 5)
        draw_shape(pen, shape, x, y, rng.randint(14, 22), color)
    many = f"{NUMBERS[count]} {color} {shape}{'s' if count > 1 else ''}"
    if count == 1:
        many = f"a {color} {shape}"
    verb = "are" if count > 1 else "is"
    return image, many, [
        ("What is in this picture?", many.capitalize() + "."),
        ("How many shapes are there?", f"There {verb} {NUMBERS[count]} shape{'s' if count > 1 else ''}."),
        (f"Count the {shape}s.", f"There {verb} {NUMBERS[count]} {shape}{'s' if count > 1 else ''}."),
        ("What color are they?" if count > 1 else "What color is it?",
         f"They are {color}." if count > 1 else f"It is {color}.")]


SCENES = [one_shape, one_shape, one_digit, one_digit, two_sides, several]


def key(image):
    return f"image {image.width} {zlib.crc32(image.tobytes()):08x}"


def draw_scene(rng, skill=False, scenes=SCENES):
    """(key, pixels [h, w, 3] uint8, description, questions) on the wanted side of the split."""
    while True:
        image, description, questions = rng.choice(scenes)(rng)
        if held_out(key(image)) == skill:
            return key(image), numpy.asarray(image), description, questions


def reasoning(description, effort):
    return by_effort(effort, f"I see {description}.", f"The picture shows {description}.",
                     f"I look at the picture. The picture shows {description}. I answer the question.")


def ask_about(rng, question):
    """The user's blocks: the picture before or after the question."""
    return [IMAGE, question] if rng.random() < 0.6 else [question, IMAGE]


def make(rng):
    thinking, effort = pick_mode(rng)
    if rng.random() < 0.15:
        return make_pair(rng, thinking, effort)
    name, pixels, description, questions = draw_scene(rng)
    messages = []
    for i, (question, answer) in enumerate(rng.sample(questions,
                                                      min(len(questions), rng.randint(1, 2 if thinking else 4)))):
        messages += [user(ask_about(rng, question) if i == 0 else question),
                     assistant(reasoning(description, effort), answer)]
    return Sample("images", Chat(messages, thinking, effort), [name], [pixels])


def make_pair(rng, thinking, effort):
    """Two pictures in one turn."""
    scenes = [draw_scene(rng, scenes=[one_shape, one_digit]) for _ in range(2)]
    first, second = (s[2] for s in scenes)
    both = f"{first} and then {second}"
    answers = [("What is in the two pictures?", f"{both[0].upper()}{both[1:]}."),
               ("What is in the first picture?", f"A{first[1:]}."),
               ("What is in the second picture?", f"A{second[1:]}.")]
    messages = []
    for i, (question, answer) in enumerate(rng.sample(answers, rng.randint(1, 3))):
        messages += [user([IMAGE, IMAGE, question] if i == 0 else question), assistant(reasoning(both, effort), answer)]
    return Sample("images", Chat(messages, thinking, effort), [s[0] for s in scenes], [s[1] for s in scenes])
