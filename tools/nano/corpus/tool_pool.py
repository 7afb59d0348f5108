"""Tools of the training conversations: their schemas, how users ask for them, what they return.

A tool is a dict:
  names, description;
  params: list of (names, schema, maker of a value[, spoken form]);
  ask: wordings with {0}, {1}, ... for the spoken values; `want`: the wish, for the reasoning;
  result: maker of a JSON value; answer: text with {0}, ... and the result's fields.
One name of each list is drawn per conversation, so names must be read off the schema.
"""
from corpus.common import NOUNS, any_city, any_name, listing, made_up_word, some_words

STRING, INTEGER, NUMBER, BOOLEAN = ({"type": t} for t in ("string", "integer", "number", "boolean"))
STRINGS = {"type": "array", "items": STRING}
INTEGERS = {"type": "array", "items": INTEGER}
OBJECT = {"type": "object"}


def enum(*values):
    return {"type": "string", "enum": list(values)}


def pick(*values):
    return lambda r: r.choice(values)


def whole(low, high):
    return lambda r: r.randint(low, high)


def tenths(low, high):
    """A number with one digit behind the point."""
    return lambda r: r.randint(low * 10, high * 10) / 10


def clock(r):
    return f"{r.randint(0, 23):02d}:{r.choice('0134')}{r.choice('05')}"


def path(r):
    folder, name = r.choice(["src", "docs", "data", "notes", made_up_word(r)]), r.choice(NOUNS)
    return f"{folder}/{name}.{r.choice(['txt', 'md', 'json', 'py'])}"


def phrase(r):
    return some_words(r, 2, 4)


def people(r):
    return [any_name(r) for _ in range(r.randint(2, 3))]


def numbers(r):
    return [r.randint(0, 99) for _ in range(r.randint(2, 5))]


def person(r):
    return {"name": any_name(r), "age": r.randint(18, 90)}


def spoken_person(value):
    return f"{value['name']}, age {value['age']}"


def point(r):
    return {"x": r.randint(0, 50), "y": r.randint(0, 50)}


def spoken_point(value):
    return f"x {value['x']}, y {value['y']}"


def on_off(value):
    return "on" if value else "off"


def ok(r):
    return {"ok": True}


ROOM = pick("kitchen", "hall", "office", "garage", "bedroom", "cellar")
DAY = pick("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

POOL = [
    dict(names=["get_weather", "weather", "current_weather"], description="Weather of a city",
         params=[(["city", "location", "place"], STRING, any_city)],
         ask=["What is the weather in {0}?", "How is the weather in {0}?", "Tell me the weather in {0}."],
         want="the weather in {0}", result=lambda r: {"degrees": r.randint(-10, 38),
                                                      "sky": r.choice(["clear", "cloudy", "rainy"])},
         answer="In {0} it is {degrees} degrees and {sky}."),
    dict(names=["get_time", "local_time", "clock"], description="Time in a city",
         params=[(["city", "location", "town"], STRING, any_city)],
         ask=["What time is it in {0}?", "Tell me the time in {0}.", "How late is it in {0}?"],
         want="the time in {0}", result=lambda r: {"time": clock(r)}, answer="In {0} it is {time}."),
    dict(names=["today", "get_date", "current_date"], description="Date of today", params=[],
         ask=["What day is it?", "What is the date today?", "Tell me the date."],
         want="the date", result=lambda r: {"date": f"2026-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"},
         answer="Today is {date}."),
    dict(names=["send_message", "message", "send_text"], description="Send a message",
         params=[(["to", "recipient", "name"], STRING, any_name), (["text", "message", "body"], STRING, phrase)],
         ask=["Send {0} the message: {1}", "Write to {0}: {1}", "Tell {0}: {1}"],
         want="a message to {0}", result=ok, answer="I sent the message to {0}."),
    dict(names=["set_timer", "timer", "start_timer"], description="Start a timer",
         params=[(["minutes", "duration", "length"], INTEGER, whole(1, 120))],
         ask=["Set a timer for {0} minutes.", "Start a timer of {0} minutes.", "Timer for {0} minutes, please."],
         want="a timer of {0} minutes", result=ok, answer="The timer runs for {0} minutes."),
    dict(names=["set_alarm", "alarm", "wake_up"], description="Set an alarm",
         params=[(["time", "at", "hour"], STRING, clock)],
         ask=["Set an alarm for {0}.", "Wake me up at {0}.", "I need an alarm at {0}."],
         want="an alarm at {0}", result=ok, answer="The alarm is set for {0}."),
    dict(names=["convert_money", "exchange", "convert"], description="Convert money",
         params=[(["amount", "value", "sum"], NUMBER, tenths(1, 500)),
                 (["from", "source", "have"], STRING, pick("EUR", "USD", "GBP", "JPY", "CHF")),
                 (["to", "target", "want"], STRING, pick("SEK", "NOK", "DKK", "PLN", "CZK"))],
         ask=["Convert {0} {1} to {2}.", "How much is {0} {1} in {2}?", "Change {0} {1} into {2}."],
         want="{0} {1} in {2}", result=lambda r: {"amount": r.randint(10, 9999) / 10},
         answer="{0} {1} are {amount} {2}."),
    dict(names=["search", "web_search", "find"], description="Search for text",
         params=[(["query", "q", "text"], STRING, phrase), (["limit", "count", "max"], INTEGER, whole(1, 20))],
         ask=["Search for {0} and show {1} results.", "Find {1} results for {0}.",
              "Look for {0}, at most {1} results."],
         want="a search for {0}", result=lambda r: {"found": r.randint(1, 900)},
         answer="I found {found} results for {0}."),
    dict(names=["read_file", "open_file", "cat"], description="Read a file",
         params=[(["path", "file", "name"], STRING, path)],
         ask=["Read the file {0}.", "What is in {0}?", "Show me {0}."],
         want="the file {0}", result=lambda r: {"text": some_words(r, 2, 5)}, answer="The file {0} says: {text}."),
    dict(names=["delete_file", "remove", "remove_file"], description="Delete a file",
         params=[(["path", "file", "target"], STRING, path)],
         ask=["Delete the file {0}.", "Remove {0}.", "Please delete {0}."],
         want="to delete {0}", result=ok, answer="The file {0} is deleted."),
    dict(names=["write_file", "save_file", "save"], description="Write a file",
         params=[(["path", "file", "name"], STRING, path), (["text", "content", "data"], STRING, phrase)],
         ask=["Write to the file {0}: {1}", "Save in {0}: {1}", "Put into {0}: {1}"],
         want="to write {0}", result=ok, answer="The file {0} is written."),
    dict(names=["add_event", "create_event", "calendar_add"], description="Add an event",
         params=[(["title", "name", "event"], STRING, lambda r: some_words(r, 2, 2)),
                 (["day", "date", "when"], STRING, DAY),
                 (["people", "guests", "with"], STRINGS, people, listing)],
         ask=["Add the event {0} on {1} with {2}.", "Plan {0} on {1} with {2}.",
              "Put {0} on {1} with {2} into the calendar."],
         want="an event on {1}", result=ok, answer="The event {0} is on {1}."),
    dict(names=["sort_numbers", "sort", "order"], description="Sort numbers",
         params=[(["numbers", "values", "list"], INTEGERS, numbers, listing),
                 (["down", "descending", "reverse"], BOOLEAN, pick(True, False),
                  lambda v: "down" if v else "up")],
         ask=["Sort {0} {1}.", "Sort the numbers {0} {1}.", "Put {0} in order, {1}."],
         want="sorted numbers", result=lambda r: {"sorted": sorted(numbers(r))}, answer="Sorted: {sorted}"),
    dict(names=["mean", "average", "get_mean"], description="Mean of numbers",
         params=[(["numbers", "values", "data"], INTEGERS, numbers, listing)],
         ask=["What is the mean of {0}?", "Give me the average of {0}.", "Mean of {0}, please."],
         want="the mean of {0}", result=lambda r: {"mean": r.randint(0, 990) / 10}, answer="The mean is {mean}."),
    dict(names=["add_contact", "new_contact", "save_contact"], description="Add a contact",
         params=[(["person", "contact", "entry"], {"type": "object", "properties": {"name": STRING, "age": INTEGER}},
                  person, spoken_person)],
         ask=["Add a contact: {0}.", "Save the contact {0}.", "New contact: {0}."],
         want="a new contact", result=lambda r: {"id": r.randint(1, 999)}, answer="The contact has the id {id}."),
    dict(names=["move_to", "go_to", "move_robot"], description="Move the robot",
         params=[(["point", "target", "position"], {"type": "object", "properties": {"x": INTEGER, "y": INTEGER}},
                  point, spoken_point),
                 (["speed", "velocity", "rate"], NUMBER, tenths(1, 9))],
         ask=["Move the robot to {0} with speed {1}.", "Go to {0} at speed {1}.", "Drive to {0}, speed {1}."],
         want="the robot at {0}", result=lambda r: {"seconds": r.randint(1, 90)},
         answer="The robot needs {seconds} seconds."),
    dict(names=["play_song", "play", "play_music"], description="Play a song",
         params=[(["title", "song", "name"], STRING, lambda r: some_words(r, 2, 3)),
                 (["volume", "level", "loudness"], INTEGER, whole(0, 100))],
         ask=["Play the song {0} at volume {1}.", "Play {0} with volume {1}.", "I want to hear {0} at volume {1}."],
         want="the song {0}", result=ok, answer="Now playing: {0}."),
    dict(names=["set_light", "light", "switch_light"], description="Switch a light",
         params=[(["room", "where", "place"], STRING, ROOM),
                 (["on", "state", "power"], BOOLEAN, pick(True, False), on_off)],
         ask=["Turn the light in the {0} {1}.", "Switch the {0} light {1}.", "Light in the {0} {1}, please."],
         want="the light in the {0} {1}", result=ok, answer="The light in the {0} is {1}."),
    dict(names=["set_heating", "heat", "set_temperature"], description="Set the heating",
         params=[(["room", "where", "zone"], STRING, ROOM),
                 (["degrees", "temperature", "value"], NUMBER, tenths(15, 25))],
         ask=["Set the {0} to {1} degrees.", "Heat the {0} to {1} degrees.", "Make the {0} {1} degrees warm."],
         want="{1} degrees in the {0}", result=ok, answer="The {0} is set to {1} degrees."),
    dict(names=["translate", "translate_text", "to_language"], description="Translate text",
         params=[(["text", "words", "phrase"], STRING, phrase),
                 (["language", "to", "target"], STRING, pick("French", "German", "Spanish", "Italian", "Polish"))],
         ask=["Translate {0} into {1}.", "What is {0} in {1}?", "Say {0} in {1}."],
         want="{0} in {1}", result=lambda r: {"text": " ".join(made_up_word(r) for _ in range(2))},
         answer="In {1} it is: {text}."),
    dict(names=["book_table", "reserve", "reserve_table"], description="Book a table",
         params=[(["restaurant", "place", "name"], STRING, any_name),
                 (["seats", "people", "persons"], INTEGER, whole(1, 12)),
                 (["time", "at", "hour"], STRING, clock)],
         ask=["Book a table at {0} for {1} people at {2}.", "Reserve a table for {1} at {0} at {2}.",
              "I need a table at {0} for {1} at {2}."],
         want="a table at {0}", result=lambda r: {"table": r.randint(1, 40)},
         answer="You have table {table} at {0} at {2}."),
    dict(names=["get_price", "price", "stock_price"], description="Price of a stock",
         params=[(["symbol", "stock", "code"], STRING, lambda r: made_up_word(r)[:4].upper())],
         ask=["What is the price of {0}?", "How much is the stock {0}?", "Price of {0}, please."],
         want="the price of {0}", result=lambda r: {"price": r.randint(10, 9999) / 10},
         answer="The price of {0} is {price}."),
    dict(names=["order_item", "buy", "order"], description="Order an item",
         params=[(["item", "product", "thing"], STRING, pick(*NOUNS)),
                 (["count", "amount", "quantity"], INTEGER, whole(1, 50)),
                 (["size", "format", "kind"], enum("small", "medium", "large"), pick("small", "medium", "large"))],
         ask=["Order {1} pieces of {0} in size {2}.", "Buy {1} times {0}, {2}.", "I want {1} of the {2} {0}."],
         want="an order of {0}", result=lambda r: {"order": r.randint(100, 999)},
         answer="Your order has the number {order}."),
    dict(names=["get_user", "find_user", "user_info"], description="Look up a user",
         params=[(["id", "user_id", "number"], INTEGER, whole(1, 9999))],
         ask=["Who is the user {0}?", "Look up user {0}.", "Find the user with id {0}."],
         want="the user {0}", result=lambda r: {"name": any_name(r)}, answer="User {0} is {name}."),
    dict(names=["random_number", "random", "draw_number"], description="Draw a number",
         params=[(["low", "min", "from"], INTEGER, whole(0, 50)), (["high", "max", "to"], INTEGER, whole(51, 999))],
         ask=["Draw a number from {0} to {1}.", "Give me a random number between {0} and {1}.",
              "Random number, {0} to {1}."],
         want="a random number", result=lambda r: {"number": r.randint(0, 999)}, answer="The number is {number}."),
    dict(names=["tag_page", "add_tags", "tag"], description="Add tags to a page",
         params=[(["page", "document", "name"], STRING, pick(*NOUNS)),
                 (["tags", "labels", "words"], STRINGS, lambda r: r.sample(NOUNS, r.randint(1, 3)), listing)],
         ask=["Tag the page {0} with {1}.", "Add the tags {1} to {0}.", "Give {0} the tags {1}."],
         want="tags on {0}", result=ok, answer="The page {0} has new tags."),
    dict(names=["run_command", "shell", "exec"], description="Run a command",
         params=[(["command", "cmd", "line"], STRING, lambda r: f"{r.choice(['ls', 'cat', 'wc', 'head'])} {path(r)}")],
         ask=["Run the command {0}", "Execute: {0}", "In the shell, run {0}"],
         want="to run {0}", result=lambda r: {"output": some_words(r, 1, 3)}, answer="The output is: {output}."),
    dict(names=["roll_dice", "dice", "roll"], description="Roll a die", params=[],
         ask=["Roll a die.", "Roll the dice.", "Throw a die for me."],
         want="a die", result=lambda r: {"eyes": r.randint(1, 6)}, answer="The die shows {eyes}."),
]
