"""The skill set with the answers that the server gave: token sequences to look at the model with.

`run_skills.mjs --out FILE` stores the ids of prompts and answers; pictures are read again from the
skill set's folder.
"""

import json
import os
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from make_corpus import TEXT, image_span

LONGEST = 2048          # tokens; the trainer's forward pass holds whole sequences


@dataclass
class Answered:
    """One prompt with its answer."""
    group: str
    ids: np.ndarray             # int64 [n], prompt and answer
    prompt_length: int
    types: np.ndarray           # int64 [n], roles of image spans, -1 for text
    images: list = field(default_factory=list)     # uint8 [h, w, 3]


def image_files(item):
    """Files that the first message of a skill names, in order."""
    content = item["request"]["messages"][0]["content"]
    parts = content if isinstance(content, list) else []
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def place_spans(ids, image_token, images):
    """Roles [n]: the image tokens of a sequence are the spans of its images, one after another."""
    types = np.full(len(ids), TEXT)
    spans = [role for image in images for role in image_span(*image.shape[:2])]
    at = np.flatnonzero(ids == image_token)
    if len(at) != len(spans):
        raise ValueError(f"{len(at)} image tokens, the pictures have {len(spans)}")
    types[at] = spans
    return types


def read_answered(skills_path, results_path, image_token):
    """All answered items up to LONGEST tokens."""
    with open(skills_path, encoding="utf-8") as file:
        items = {item["id"]: item for item in json.load(file)["items"]}
    with open(results_path, encoding="utf-8") as file:
        outcomes = json.load(file)["outcomes"]
    answered = []
    for outcome in outcomes:
        if "ids" not in outcome:
            continue
        ids = np.array(outcome["ids"]["prompt"] + outcome["ids"]["answer"], np.int64)
        if len(ids) > LONGEST:
            continue
        folder = os.path.dirname(skills_path)
        images = [np.asarray(Image.open(os.path.join(folder, name)).convert("RGB"))
                  for name in image_files(items[outcome["id"]])]
        answered.append(Answered(outcome["group"], ids, len(outcome["ids"]["prompt"]),
                                 place_spans(ids, image_token, images), images))
    return answered
