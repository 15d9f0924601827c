"""The agent's connection to the coordinator: a websocket, HTTP for bulk; imports `wire`."""
