"""`python -m uvicorn api.main:app`, as an alternative to `trainhall server`."""

from trainhall.api.app import create_app
from trainhall.api.logs import configure_logging
from trainhall.api.settings import Settings

_settings = Settings()
configure_logging(_settings.logged_level)
app = create_app(_settings)
