"""The versions of the packages named, as they are installed here."""

import json
import sys
from importlib import metadata

print(json.dumps({name: metadata.version(name) for name in json.loads(sys.argv[1])["packages"]}))
