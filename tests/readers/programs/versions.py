"""The installed versions of the named packages."""

import json
import sys
from importlib import metadata

print(json.dumps({name: metadata.version(name) for name in json.loads(sys.argv[1])["packages"]}))
