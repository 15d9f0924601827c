"""`python -m uvicorn api.main:app`, as an alternative to `trainhall server`."""

from trainhall.api.app import create_app
from trainhall.api.host.private_files import keep_private
from trainhall.api.logs import configure_logging
from trainhall.api.settings import Settings

_settings = Settings()
configure_logging(_settings.logged_level)
keep_private(_settings.data_dir)
app = create_app(_settings)
