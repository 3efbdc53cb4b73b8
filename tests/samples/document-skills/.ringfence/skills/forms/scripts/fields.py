import json
import sys

json.dump({"fields": ["name", "date"]}, sys.stdout)