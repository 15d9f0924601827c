"""Routes of the login beside `auth`: an OpenID provider, and the command line; imports `site`."""
