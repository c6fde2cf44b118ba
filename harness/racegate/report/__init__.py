"""Reports: renderings of results. None of them decides anything."""
